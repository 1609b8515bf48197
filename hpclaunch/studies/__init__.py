"""What several runs together say."""
