"""Recordings: their reading, their checks, and counts of their rows.

``columns`` has the columns of a row, ``contract`` the content of a manifest and the
comparable runs. Of the analysis, this package imports ``statistics`` only.
"""
