"""Content of a report: schema, numbers in text, tables, first screen, sentences."""
