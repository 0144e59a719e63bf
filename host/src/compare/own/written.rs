//! Writes the files of a comparison of columns.

use super::super::csv;
use super::super::files::Written;
use super::super::markdown::Document;
use super::report::OwnReport;
use super::{html, markdown, measured};
use crate::failure::Failure;

impl Written for OwnReport {
    fn figures(&self) -> Result<Vec<u8>, Failure> {
        csv::figures(self.named().flat_map(|(name, run)| {
            let told = measured::of(run).into_iter();
            told.map(move |told| (name, run, told.figure))
        }))
    }

    fn timelines(&self) -> Result<Vec<u8>, Failure> {
        csv::timelines(self.named())
    }

    fn page(&self) -> String {
        html::page(self)
    }

    fn document(&self) -> Document {
        markdown::document(self)
    }
}
