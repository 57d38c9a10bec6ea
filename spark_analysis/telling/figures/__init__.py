"""The figures of a report: one function each, drawn the same way, byte for byte."""
