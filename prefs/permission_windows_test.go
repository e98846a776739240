package prefs

const unprivilegedRole = "nobody"

func dropPrivileges() {}
