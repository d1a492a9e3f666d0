package store

import "math/rand/v2"

// secretFile holds the secret of the digests of DNS names. It stays for as long as policies are in
// force: budgets by name outlive a replace.
const secretFile = "secret.json"

// Secret returns what digests of DNS names depend on here, which is drawn until one is kept. One
// that cannot be read is drawn anew: budgets by name begin anew then.
func (s *Store) Secret() (secret [2]uint64) {
	if err := ReadJSON(s.State(secretFile), &secret); err == nil && secret != [2]uint64{} {
		return secret
	}
	return [2]uint64{rand.Uint64(), rand.Uint64()}
}

// KeepSecret keeps the secret of a policy that was compiled with names.
func (s *Store) KeepSecret(secret [2]uint64) error {
	return WriteSecret(s.State(secretFile), secret)
}
