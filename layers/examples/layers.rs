//! Prints the files of a crate in layers, each file one layer above the highest file that it uses,
//! and the crate's import cycles: `cargo run -p ebb-layers --example layers -- host/src/lib.rs`.

use ebb_layers::{LayerRules, Tree};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let root = std::env::args()
        .nth(1)
        .ok_or("which crate? For example host/src/lib.rs")?;
    let tree = Tree::read(Path::new(&root))?;
    let imports = tree.imports();
    let mut layers: BTreeMap<&str, usize> = tree.files().map(|file| (file, 0)).collect();
    // Files in a cycle never settle, so the number of rounds is limited.
    for _ in 0..layers.len() {
        let before = layers.clone();
        for import in &imports {
            let above = before.get(import.to.as_str()).map_or(0, |layer| layer + 1);
            if let Some(layer) = layers.get_mut(import.from.as_str()) {
                *layer = above.max(*layer);
            }
        }
        if layers == before {
            break;
        }
    }
    let mut sorted: Vec<(usize, &str)> =
        layers.iter().map(|(&file, &layer)| (layer, file)).collect();
    sorted.sort_by_key(|&(layer, file)| (std::cmp::Reverse(layer), file));
    for (layer, file) in sorted {
        let uses = imports.iter().filter(|import| import.from == file);
        let uses: Vec<&str> = uses.map(|import| import.to.as_str()).collect();
        println!("{layer:3} {file} → {}", uses.join(" "));
    }
    let layers: Vec<&str> = tree.files().collect();
    let all = layers.join(" ");
    for wrong in (LayerRules {
        root: &root,
        layers: &[&all],
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
