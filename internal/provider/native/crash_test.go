package native

func crashChild(string) {}
