package upstream

import "context"

// askLoginShell has nobody to ask: Windows gives every program the user's PATH.
func askLoginShell(context.Context) (string, error) { return "", errNoLoginShell }
