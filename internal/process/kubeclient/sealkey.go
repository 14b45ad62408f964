package kubeclient

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/sluice-gitops/sluice/internal/credentials/seal"
)

// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;create

const (
	sealSecret = "sluice-status-seal" // in the namespace of the controllers
	sealEntry  = "key"                // of the Secret
	// sessionSecret contains the key of sessions of the web UI, as sealSecret does.
	sessionSecret = "sluice-ui-session"
	// hubSessionSecret contains the key of sessions of the pages of a hub.
	hubSessionSecret = "sluice-hub-session"
	sealFile         = "status-seal.key" // in --storage-path
	sealTimeout      = 30 * time.Second  // for all requests
)

// SealKey returns the key that seals status fields. All processes and replicas share it by a Secret in the namespace of
// the controllers. Without access to the Secret, such as outside of a cluster, the process keeps a key of its own in
// the directory.
func SealKey(ctx context.Context, mgr manager.Manager, namespace, dir string) (*seal.Key, error) {
	file := filepath.Join(dir, sealFile)
	ctx, cancel := context.WithTimeout(ctx, sealTimeout)
	defer cancel()
	ref := client.ObjectKey{Namespace: namespace, Name: sealSecret}
	secret, err := sharedSeal(ctx, mgr.GetAPIReader(), mgr.GetClient(), ref, file)
	if err == nil {
		return seal.New(secret), nil
	}
	if !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return nil, err
	}
	log.FromContext(ctx).V(1).Info("the key of status seals is kept on disk, as the Secret cannot be used",
		"namespace", namespace, "name", sealSecret, "reason", err.Error())
	own, err := readSeal(file)
	if errors.Is(err, fs.ErrNotExist) {
		own, err = newSeal(), nil
	}
	if err == nil {
		err = writeSeal(file, own)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot keep the key of status seals in --storage-path: %w", err)
	}
	return seal.New(own), nil
}

// sharedSeal reads the Secret, and creates it if it does not exist, with the key in the file if there is one.
func sharedSeal(ctx context.Context, api client.Reader, c client.Client, key client.ObjectKey, file string) (
	[]byte, error) {

	s := &corev1.Secret{}
	err := api.Get(ctx, key, s)
	if apierrors.IsNotFound(err) {
		ctx = OnStandby(ctx)
		own, readErr := readSeal(file)
		if readErr != nil {
			own = newSeal()
		}
		s = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
			Data: map[string][]byte{sealEntry: own}}
		if err = c.Create(ctx, s); apierrors.IsAlreadyExists(err) { // by another replica
			err = api.Get(ctx, key, s)
		}
	}
	if err != nil {
		return nil, err
	}
	if len(s.Data[sealEntry]) != seal.Size {
		return nil, fmt.Errorf("Secret '%s' has no key '%s' of %d bytes; delete it, and the next start creates it",
			key, sealEntry, seal.Size)
	}
	return s.Data[sealEntry], nil
}

// SessionKey returns the key of the sessions of the web UI. All replicas share it by a Secret in the namespace of the
// controllers.
func SessionKey(ctx context.Context, mgr manager.Manager, namespace string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, sealTimeout)
	defer cancel()
	ref := client.ObjectKey{Namespace: namespace, Name: sessionSecret}
	return explainSession(sharedSeal(ctx, mgr.GetAPIReader(), mgr.GetClient(), ref, ""))
}

func explainSession(key []byte, err error) ([]byte, error) {
	if err != nil {
		return nil, fmt.Errorf("cannot keep the key of sessions in a Secret, set --ui-session-key-file: %w", err)
	}
	return key, nil
}

// HubSessionKey returns the key of the sessions of the pages of a hub, which all replicas share. An installation has an
// empty Secret for it: a right to create Secrets would let a hub get the tokens of all accounts of its namespace.
func HubSessionKey(ctx context.Context, c client.Client, namespace string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, sealTimeout)
	defer cancel()
	ref := client.ObjectKey{Namespace: namespace, Name: hubSessionSecret}
	s := &corev1.Secret{}
	if err := c.Get(ctx, ref, s); err == nil && len(s.Data) == 0 {
		s.Data = map[string][]byte{sealEntry: newSeal()}
		if err := c.Update(ctx, s); err != nil && !apierrors.IsConflict(err) { // with another replica
			return explainSession(nil, err)
		}
	}
	return explainSession(sharedSeal(ctx, c, c, ref, ""))
}

func newSeal() []byte {
	secret := make([]byte, seal.Size)
	_, _ = rand.Read(secret) // never fails
	return secret
}

func readSeal(file string) ([]byte, error) {
	b, err := os.ReadFile(file)
	if err == nil && len(b) != seal.Size {
		err = fs.ErrNotExist // incomplete
	}
	return b, err
}

func writeSeal(file string, secret []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return os.WriteFile(file, secret, 0o600)
}
