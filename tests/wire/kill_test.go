package wire

const victimDir = "CHECKFU_TEST_VICTIM"

func serveUntilKilled(dir string) int { return 1 }
