"""What commands do once they know what is wanted; they import it when they run."""
