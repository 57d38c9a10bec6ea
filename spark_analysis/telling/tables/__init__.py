"""Results as tables: rows of raw values, and the files made of them."""
