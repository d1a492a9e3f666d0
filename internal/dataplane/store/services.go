package store

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
)

// Policies of services have a runtime directory of their own, beside that of interfaces and laid
// out as it is. There KEY is the name of the service, see ServiceKey.

// servicesSuffix makes that directory of the one of interfaces.
const servicesSuffix = "-services"

// servicePrefix begins what stands for a service where an interface may stand. No interface has a
// name with a blank.
const servicePrefix = "service "

// Service returns what stands for a service where an interface may stand.
func Service(name string) string { return servicePrefix + name }

// ServiceNamed returns the name of the service that a word stands for, if it stands for one.
func ServiceNamed(dev string) (name string, ok bool) {
	return strings.CutPrefix(dev, servicePrefix)
}

// ServiceKey returns the key of a service. A bpffs takes no names with a dot.
func ServiceKey(name string) string { return strings.ReplaceAll(name, ".", ",") }

// TransactServices is Transact in the runtime directory of services.
func TransactServices(ctx context.Context, fn func(*Store) error) error {
	return transactIn(ctx, servicesSuffix, fn)
}

// ServicesForReading is ForReading in the runtime directory of services, nil where it is not there.
func ServicesForReading(ctx context.Context, refused error) (*Store, error) {
	dir, err := ServicesDirectory()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return readingIn(ctx, servicesSuffix, refused)
}

// ServicesDirectory returns the runtime directory of services.
func ServicesDirectory() (string, error) {
	dir, err := Directory()
	return dir + servicesSuffix, err
}

// AnyService reports whether any service has a policy, without a lock.
func AnyService() (any bool, err error) {
	dir, err := ServicesDirectory()
	if err != nil {
		return false, err
	}
	err = OnHost(func() error {
		_, err := os.Stat(dir)
		any = err == nil
		return nil
	})
	return any, err
}
