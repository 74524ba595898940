"""The content-based algebra: values, filters, matching, tables, orderings. No I/O."""
