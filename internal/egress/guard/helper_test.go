package guard_test

// helperEnv names what a child of a test does instead of testing.
const helperEnv = "CHECKFU_GUARD_TEST_HELPER"

func helper() int { return 0 }
