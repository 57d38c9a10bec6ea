"""Report of one experiment: ``results.json``, and everything rendered from it.

`results` turns judged comparisons into plain data. Tables, figures, the page, the
terminal output and the paper read that data and nothing else, so a number or a verdict
is decided in one place.
"""
