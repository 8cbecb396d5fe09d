//! HTML: written in one place, escaped in one place.

mod lineage_picture;
mod plan_page;
mod writer;

pub use lineage_picture::lineage_picture;
pub use plan_page::{MAX_PAGE_SIZE, STYLES, plan_page, plan_sections};
pub use writer::HtmlWriter;
