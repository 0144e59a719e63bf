//! The files that the user wants of a comparison: room is kept for them before anything runs.

use super::agreement::Agreement;
use super::markdown::Document;
use super::options::CompareOptions;
use super::output::Output;
use crate::failure::Failure;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// A page holds thinned curves.
const HTML_BYTES: u64 = 1 << 20;
const MARKDOWN_BYTES: u64 = 1 << 16;

/// A report that files are written of, each form of it made when it is wanted.
pub(crate) trait Written: Serialize {
    /// The figures of all runs as CSV.
    fn figures(&self) -> Result<Vec<u8>, Failure>;
    /// The curves of all runs as CSV.
    fn timelines(&self) -> Result<Vec<u8>, Failure>;
    /// A page that stands alone.
    fn page(&self) -> String;
    /// A section of a document.
    fn document(&self) -> Document;
}

/// Files that have their room.
#[derive(Debug)]
pub(crate) struct Files {
    json: Option<Output>,
    csv: Option<Output>,
    timeline_csv: Option<Output>,
    html: Option<Output>,
    markdown: Option<(PathBuf, Output)>,
    against: Option<Output>,
}

impl Files {
    /// Keeps room for all that is wanted, so many bytes for the JSON.
    pub(crate) fn reserve(options: &CompareOptions, json_bytes: u64) -> Result<Self, Failure> {
        let reserve = |path: &Option<PathBuf>, bytes| {
            let path = path.as_deref();
            path.map(|path: &Path| Output::reserve(path, bytes))
                .transpose()
        };
        Ok(Self {
            json: reserve(&options.json, json_bytes)?,
            csv: reserve(&options.csv, 1)?,
            timeline_csv: reserve(&options.timeline_csv, 1)?,
            html: reserve(&options.html, HTML_BYTES)?,
            markdown: options
                .markdown
                .clone()
                .zip(reserve(&options.markdown, MARKDOWN_BYTES)?),
            against: reserve(&options.against_markdown, MARKDOWN_BYTES)?,
        })
    }

    /// Writes them, in this order, up to the first that fails.
    pub(crate) fn write(
        self,
        report: &impl Written,
        agreement: Option<&Agreement>,
    ) -> Result<(), Failure> {
        if let Some(output) = self.json {
            let mut bytes = serde_json::to_vec(report)
                .map_err(std::io::Error::from)
                .map_err(Failure::setup("the JSON report"))?;
            bytes.push(b'\n');
            output.write(&bytes)?;
        }
        if let Some(output) = self.csv {
            output.write(&report.figures()?)?;
        }
        if let Some(output) = self.timeline_csv {
            output.write(&report.timelines()?)?;
        }
        if let Some(output) = self.html {
            output.write(report.page().as_bytes())?;
        }
        if let Some((path, output)) = self.markdown {
            report.document().write(&path, output)?;
        }
        if let (Some(output), Some(agreement)) = (self.against, agreement) {
            output.write(agreement.markdown().as_bytes())?;
        }
        Ok(())
    }
}
