//! Tests files with the standard library.
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

fn main() -> io::Result<()> {
    let base = std::env::temp_dir().join(format!("ebb-files-{}", std::process::id()));
    fs::create_dir_all(base.join("a/b/c"))?;
    let file = base.join("a/file");
    fs::write(&file, "one\ntwo\nthree\n")?;
    println!("{:?}", fs::read_to_string(&file)?);
    let mut f = OpenOptions::new().read(true).append(true).open(&file)?;
    f.write_all(b"four\n")?;
    f.seek(SeekFrom::Start(4))?;
    let mut text = String::new();
    f.read_to_string(&mut text)?;
    println!("{text:?}");
    f.set_len(7)?;
    println!("{} {:?}", f.metadata()?.len(), fs::read(&file)?);
    println!("{:?}", File::create_new(&file).map(|_| ()).map_err(|e| e.kind()));
    println!("{:?}", File::open(base.join("none")).map(|_| ()).map_err(|e| e.kind()));
    println!("{:?}", fs::remove_dir(base.join("a")).map_err(|e| e.kind()));
    println!("{:?}", fs::read_to_string(base.join("a")).map_err(|e| e.kind()));

    let big = base.join("big");
    let mut out = BufWriter::new(File::create(&big)?);
    for i in 0..200_000_u32 {
        writeln!(out, "{i} {}", i.wrapping_mul(2_654_435_761))?;
    }
    out.into_inner()?.sync_all()?;
    let mut sum = 0_u64;
    for line in BufReader::new(File::open(&big)?).lines() {
        let line = line?;
        sum += line.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    }
    println!("{} bytes, sum {sum}", fs::metadata(&big)?.len());
    println!("{}", fs::copy(&big, base.join("copy"))?);
    println!("{}", fs::read(&big)? == fs::read(base.join("copy"))?);
    let f = File::open(&big)?;
    let mut four = [0; 4];
    f.read_exact_at(&mut four, 1000)?;
    println!("{four:?}");

    fs::rename(base.join("copy"), base.join("a/moved"))?;
    fs::hard_link(base.join("a/moved"), base.join("a/hard"))?;
    symlink("moved", base.join("a/soft"))?;
    fs::set_permissions(base.join("a/moved"), fs::Permissions::from_mode(0o640))?;
    let m = fs::metadata(base.join("a/soft"))?;
    println!("{:o} {} {}", m.mode(), m.nlink(), m.is_file());
    println!("{:?} {}", fs::read_link(base.join("a/soft"))?, fs::symlink_metadata(base.join("a/soft"))?.is_symlink());
    println!("{}", fs::canonicalize(base.join("a/b/../soft"))? == base.join("a/moved").canonicalize()?);
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    File::options().write(true).open(base.join("a/moved"))?.set_modified(time)?;
    println!("{}", fs::metadata(base.join("a/moved"))?.modified()? == time);
    let mut names: Vec<_> = fs::read_dir(base.join("a"))?
        .map(|e| e.map(|e| (e.file_name(), e.file_type().is_ok_and(|t| t.is_dir()))))
        .collect::<Result<_, _>>()?;
    names.sort();
    println!("{names:?}");
    println!("{:?}", fs::exists(base.join("a/soft"))?);
    let mut reader = fs::read(&big)?;
    reader.truncate(1 << 20);
    io::copy(&mut &reader[..], &mut File::create(base.join("copied"))?)?;
    println!("{}", fs::metadata(base.join("copied"))?.len());
    fs::remove_dir_all(&base)?;
    println!("{}", base.exists());
    std::panic::set_hook(Box::new(|_| ()));
    let result = std::panic::catch_unwind(|| panic!("caught"));
    println!("{}", result.is_err());
    let numbers: Vec<f64> = (1..=20).map(|x| f64::from(x).sqrt()).collect();
    println!("{:.6} {:?}", numbers.iter().sum::<f64>(), numbers[6]);
    println!("{:?}", "überraschend".chars().rev().collect::<String>());
    Err(io::Error::other("ends with an error on purpose"))
}
