"""Record batches: their headers, their codecs, and the records inside."""
