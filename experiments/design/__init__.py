"""An experiment as data: its file, its traffic, its sweep."""
