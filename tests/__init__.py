"""The tests are one package, since an installed library also has a `tests` package."""
