"""Great Expectations suites built from the public record schema."""
