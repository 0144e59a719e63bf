//! Prints the files of a crate in layers, each file one layer above the highest file that it uses,
//! and the crate's import cycles: `cargo run -p ebb-layers --example floors -- host/src/lib.rs`.

use ebb_layers::{House, Tree};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let root = std::env::args()
        .nth(1)
        .ok_or("which crate? For example host/src/lib.rs")?;
    let tree = Tree::read(Path::new(&root))?;
    let arrows = tree.arrows();
    let mut floors: BTreeMap<&str, usize> = tree.files().map(|file| (file, 0)).collect();
    // Files in a cycle never settle, so the number of rounds is limited.
    for _ in 0..floors.len() {
        let before = floors.clone();
        for arrow in &arrows {
            let above = before.get(arrow.to.as_str()).map_or(0, |floor| floor + 1);
            if let Some(floor) = floors.get_mut(arrow.from.as_str()) {
                *floor = above.max(*floor);
            }
        }
        if floors == before {
            break;
        }
    }
    let mut sorted: Vec<(usize, &str)> =
        floors.iter().map(|(&file, &floor)| (floor, file)).collect();
    sorted.sort_by_key(|&(floor, file)| (std::cmp::Reverse(floor), file));
    for (floor, file) in sorted {
        let uses = arrows.iter().filter(|arrow| arrow.from == file);
        let uses: Vec<&str> = uses.map(|arrow| arrow.to.as_str()).collect();
        println!("{floor:3} {file} → {}", uses.join(" "));
    }
    let floors: Vec<&str> = tree.files().collect();
    let all = floors.join(" ");
    for wrong in (House {
        root: &root,
        floors: &[&all],
        exceptions: &[],
    })
    .check_tree(&tree)
    {
        if wrong.starts_with("a circle") {
            println!("{wrong}");
        }
    }
    Ok(())
}
