//! The output files of a comparison. Space for them is reserved before any run.

use super::agreement::Agreement;
use super::markdown::Document;
use super::options::CompareOptions;
use super::output::Output;
use crate::failure::Failure;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The space for the page in bytes. Its curves are thinned.
const HTML_BYTES: u64 = 1 << 20;
/// The space for a Markdown section in bytes.
const MARKDOWN_BYTES: u64 = 1 << 16;

/// A report that can be written to files. Each format is produced when a file needs it.
pub(crate) trait Written: Serialize {
    /// Returns the figures of all runs as CSV. Fails if a line cannot be converted.
    fn figures(&self) -> Result<Vec<u8>, Failure>;
    /// Returns the timelines of all runs as CSV. Fails if a line cannot be converted.
    fn timelines(&self) -> Result<Vec<u8>, Failure>;
    /// Returns the report as a self-contained HTML page.
    fn page(&self) -> String;
    /// Returns the report as a section for a Markdown document, with its plots.
    fn document(&self) -> Document;
}

/// The output files of a comparison, for which space is reserved. Dropping this without
/// [`Self::write`] leaves existing files as they were.
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
    /// Reserves space for all files that the user wants: `json_bytes` for the JSON, and guesses for
    /// the others. Fails if a file cannot be created or there is not enough space. The files
    /// reserved before are given up then.
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

    /// Writes the files in the order of the fields. The file of `--against-markdown` is only
    /// written if there is an `agreement`. Fails with the error of the first file that cannot be
    /// produced or written, and skips the rest.
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
