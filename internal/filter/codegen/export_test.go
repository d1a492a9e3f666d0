package codegen

// ParseKey and EnvAt are for tests of emitted programs.
type ParseKey = parseKey

const EnvAt = envAt
