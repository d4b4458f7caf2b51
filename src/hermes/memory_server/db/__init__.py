"""Tables, their migrations, and one writer per process for the file they live in."""
