"""Two replies judged against each other, in both orders."""
