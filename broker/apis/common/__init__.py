"""What the files of several APIs share; none of it knows a single API."""
