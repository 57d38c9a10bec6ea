"""The tests are a package of their own name: an installed library brings a `tests`."""
