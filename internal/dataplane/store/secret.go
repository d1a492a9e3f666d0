package store

import (
	"math/rand/v2"
)

// secretFile has what digests of DNS names depend on. It stays for as long as policies are in
// force: budgets by name outlive a replace.
const secretFile = "secret.json"

// Secret is what digests of DNS names depend on here, which is drawn for the first policy. One that
// cannot be read is drawn anew: budgets by name begin anew then.
func (s *Store) Secret() (secret [2]uint64, err error) {
	if err := ReadJSON(s.State(secretFile), &secret); err == nil && secret != [2]uint64{} {
		return secret, nil
	}
	secret = [2]uint64{rand.Uint64(), rand.Uint64()}
	return secret, WriteSecret(s.State(secretFile), secret)
}
