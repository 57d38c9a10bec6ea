"""Report of one experiment: ``results.json``, and everything rendered from it.

`results` turns judged comparisons into plain data. Tables, figures, the page, the
terminal output and the paper read only that data, so every number and verdict is
decided in one place.
"""
