"""Bad days, one from each seed: drawn, lived through, judged, and made smaller."""
