"""Bad days from seeds: drawn, simulated, judged, and shrunk."""
