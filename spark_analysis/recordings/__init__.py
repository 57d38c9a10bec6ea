"""What was recorded, read and checked: the manifest, the rows, and their tally.

``columns`` says what a row holds, ``contract`` what a manifest says and which runs may
be compared. Imports nothing else of the analysis but ``statistics``.
"""
