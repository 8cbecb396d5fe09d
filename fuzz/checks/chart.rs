//! Charts: a package, or a template and further files with `=== PATH` before each.

use kiln_chart::{Chart, ChartLimits, ChartOptions, HelmVersion, MemoryFiles, render};
use kiln_value::Map;

const CHART: &str = "apiVersion: v2\nname: app\nversion: 1.0.0\n";

pub(crate) fn check(input: &[u8]) {
    let limits = ChartLimits {
        files: 100,
        file_bytes: 1 << 16,
        chart_bytes: 1 << 18,
        steps: 100_000,
        bytes: 1 << 20,
        ..ChartLimits::default()
    };
    for helm in [HelmVersion::V3, HelmVersion::V4] {
        let options = ChartOptions { helm, limits, include_crds: true, ..ChartOptions::default() };
        let chart = match input.starts_with(b"\x1F\x8B") {
            true => Chart::load_package(input, &options),
            false => {
                let Ok(text) = std::str::from_utf8(input) else { return };
                let mut pieces = text.split("\n=== ");
                let first = [
                    ("Chart.yaml", CHART),
                    ("templates/t.yaml", pieces.next().unwrap_or_default()),
                ];
                let files = pieces.filter_map(|piece| piece.split_once('\n'));
                let files = MemoryFiles::new(first.into_iter().chain(files));
                Chart::load(&files, &options)
            }
        };
        match chart.and_then(|chart| render(chart, &Map::new(), &options)) {
            Ok(rendered) => assert!(rendered.text().ends_with('\n')),
            Err(error) => {
                if let Some(place) = &error.diagnostic().place {
                    assert!(
                        place.source().text().get(place.span()).is_some(),
                        "the place is in the text"
                    );
                }
            }
        }
    }
}
