"""A study told: in sentences, tables, figures, on a page, a terminal and in a paper.

``sentences`` write numbers and say what was found; ``tables`` may use them, ``figures``
too, and ``report`` sets all three on one page. Nothing is judged here.
"""
