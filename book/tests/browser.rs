//! The book and the reports of `ebb compare`, opened in Chromium: plots are drawn, the console
//! stays empty, no request leaves the machine, and the pages can be read on a narrow screen, in
//! dark colors and on paper.
//!
//! `make test-pages` makes the report, and names its folder in `EBB_REPORTS`.

use headless_chrome::protocol::cdp::types::Event;
use headless_chrome::protocol::cdp::{Emulation, Network};
use headless_chrome::{Browser, LaunchOptions, Tab};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use walkdir::WalkDir;

/// Far above what a page takes to load on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);

/// What a page has done since it was opened.
#[derive(Default)]
struct Seen {
    /// What the page or the browser has written to the console.
    console: Vec<String>,
    /// The addresses that the page has asked for.
    requests: Vec<String>,
}

/// A browser with one open page.
struct Window {
    _browser: Browser,
    tab: Arc<Tab>,
    seen: Arc<Mutex<Seen>>,
}

impl Window {
    fn new() -> Self {
        let options = LaunchOptions::default_builder()
            .path(Some(PathBuf::from("/usr/bin/chromium")))
            // Chromium's sandbox needs a user who is not root. All pages are ours.
            .sandbox(false)
            .idle_browser_timeout(LIMIT)
            // No name has an address, so that a request to another machine fails, too.
            .args(vec![OsStr::new("--host-resolver-rules=MAP * ~NOTFOUND")])
            .build()
            .expect("options");
        let browser = Browser::new(options).expect("Chromium");
        let tab = browser.new_tab().expect("a tab");
        tab.set_default_timeout(LIMIT);
        tab.enable_log().expect("the log");
        tab.enable_runtime().expect("the runtime");
        let network = Network::Enable {
            max_total_buffer_size: None,
            max_resource_buffer_size: None,
            max_post_data_size: None,
            report_direct_socket_traffic: None,
            enable_durable_messages: None,
        };
        tab.call_method(network).expect("the network's events");
        let seen = Arc::new(Mutex::new(Seen::default()));
        let log = seen.clone();
        let listen = move |event: &Event| {
            let mut seen = log.lock().expect("a lock");
            match event {
                Event::LogEntryAdded(entry) => {
                    seen.console.push(entry.params.entry.text.clone());
                }
                Event::RuntimeConsoleAPICalled(call) => {
                    seen.console.push(format!("{:?}", call.params.args));
                }
                Event::RuntimeExceptionThrown(thrown) => {
                    let details = &thrown.params.exception_details;
                    let error = details.exception.as_ref();
                    let error = error.and_then(|error| error.description.as_deref());
                    seen.console.push(error.unwrap_or(&details.text).to_owned());
                }
                Event::NetworkRequestWillBeSent(request) => {
                    seen.requests.push(request.params.request.url.clone());
                }
                _ => {}
            }
        };
        tab.add_event_listener(Arc::new(listen))
            .expect("a listener");
        Self {
            _browser: browser,
            tab,
            seen,
        }
    }

    /// Opens the file `page` in a window of `width` pixels, for a reader who prefers `scheme`
    /// colors. Returns what is wrong.
    fn open(&self, page: &Path, width: u32, scheme: &str, medium: &str) -> Vec<String> {
        *self.seen.lock().expect("a lock") = Seen::default();
        let size = Emulation::SetDeviceMetricsOverride {
            width,
            height: 800,
            device_scale_factor: 1.0,
            mobile: false,
            scale: None,
            screen_width: None,
            screen_height: None,
            position_x: None,
            position_y: None,
            dont_set_visible_size: None,
            screen_orientation: None,
            viewport: None,
            display_feature: None,
            device_posture: None,
        };
        self.tab.call_method(size).expect("a size");
        let media = Emulation::SetEmulatedMedia {
            media: Some(medium.to_owned()),
            features: Some(vec![Emulation::MediaFeature {
                name: "prefers-color-scheme".to_owned(),
                value: scheme.to_owned(),
            }]),
        };
        self.tab.call_method(media).expect("a medium");
        let address = format!("file://{}", page.display());
        self.tab.navigate_to(&address).expect("a page");
        self.tab.wait_until_navigated().expect("a page");
        let found = self.evaluate(include_str!("looks.js"));
        let mut wrong: Vec<String> = serde_json::from_str(&found).expect("a list");
        let seen = self.seen.lock().expect("a lock");
        wrong.extend(
            seen.console
                .iter()
                .map(|line| format!("the console says {line}")),
        );
        let is_local = |url: &&String| !url.starts_with("file://") && !url.starts_with("data:");
        let foreign = seen.requests.iter().filter(is_local);
        wrong.extend(foreign.map(|url| format!("asks for {url}")));
        assert!(
            seen.requests.contains(&address),
            "the request for {address} itself was not seen: {:?}",
            seen.requests
        );
        let case = format!("{} at {width} pixels, {scheme}, {medium}", page.display());
        wrong.iter().map(|what| format!("{case}: {what}")).collect()
    }

    /// Runs `script`, which is a JavaScript expression, in the page. Returns its text.
    fn evaluate(&self, script: &str) -> String {
        let result = self.tab.evaluate(script, true).expect("a script");
        match result.value {
            Some(Value::String(text)) => text,
            other => panic!("the script returned {other:?}"),
        }
    }
}

/// Returns the pages in `folder`, which must have some.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let entries = WalkDir::new(folder).sort_by_file_name().into_iter();
    let files = entries.map(|entry| entry.expect("an entry").into_path());
    let pages: Vec<PathBuf> = files
        .filter(|path| path.extension().is_some_and(|end| end == "html"))
        // A part of other pages, which shows the contents where scripts are off.
        .filter(|path| path.file_name() != Some(OsStr::new("toc.html")))
        .collect();
    assert!(!pages.is_empty(), "{} has no page", folder.display());
    pages
}

/// Opens each page in each way and fails with all that is wrong.
fn all_look_right(pages: &[PathBuf]) {
    let window = Window::new();
    let mut wrong = Vec::new();
    for page in pages {
        for (width, scheme, medium) in [
            (1200, "light", "screen"),
            (400, "light", "screen"),
            (1200, "dark", "screen"),
            (400, "dark", "screen"),
            (700, "light", "print"),
            (700, "dark", "print"),
        ] {
            wrong.extend(window.open(page, width, scheme, medium));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_books_pages_look_right() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize();
    let folder = ebb_book::build(&root.expect("the repository")).expect("the book");
    all_look_right(&pages(&folder));
}

#[test]
fn reports_look_right() {
    let folder = std::env::var_os("EBB_REPORTS").expect("EBB_REPORTS names a folder with reports");
    let folder = Path::new(&folder)
        .canonicalize()
        .expect("the folder EBB_REPORTS");
    let reports = pages(&folder);
    all_look_right(&reports);
    let window = Window::new();
    window.open(&reports[0], 1200, "light", "screen");
    let plots = window.evaluate("String(document.querySelectorAll('svg').length)");
    assert_ne!(plots, "0", "the report has no plot");
    let paper = window.tab.print_to_pdf(None).expect("a PDF");
    assert!(paper.starts_with(b"%PDF"), "printing gives no PDF");
}

#[test]
fn what_is_wrong_with_a_page_is_found() {
    let folder = std::env::temp_dir().join(format!("ebb-browser-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let page = folder.join("bad.html");
    let text = r#"<!doctype html><body style="background:#fff;color:#eee">
        <p style="width:900px">pale and wide</p><svg width="50" height="50"></svg>
        <img src="http://example.org/x.png"><script>console.error("oh"); nothing();</script>"#;
    std::fs::write(&page, text).expect("a page");
    let wrong = Window::new().open(&page, 400, "light", "screen").join("\n");
    std::fs::remove_dir_all(&folder).expect("the folder");
    for part in [
        "pixels wide",
        "contrast",
        "empty",
        "oh",
        "http://example.org",
        "nothing",
    ] {
        assert!(wrong.contains(part), "{part} is not in:\n{wrong}");
    }
}
