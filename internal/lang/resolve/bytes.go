package resolve

// maxLooks is how many terms on the payload a policy may have: each is code of its own, and the
// kernel's verifier takes a million instructions.
const maxLooks = 1024
