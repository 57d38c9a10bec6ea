"""Recordings, read and checked: the manifest, the rows, and their tally.

``columns`` has the columns of a row, ``contract`` the content of a manifest and the
runs that may be compared. Imports nothing else of the analysis but ``statistics``.
"""
