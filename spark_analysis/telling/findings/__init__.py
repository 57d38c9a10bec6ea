"""A page of findings: prose without a figure, and what recordings put between."""
