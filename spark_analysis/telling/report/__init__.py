"""The report: one HTML file that needs no network and is the same bytes every time."""
