package manager

// Connect is exported for tests.
var Connect = connect
