"""What writes the documents of this repository from its records; no part of the package."""
