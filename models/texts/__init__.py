"""What replies are read with: thinking, quotations, and work on texts that may be long."""
