package migrate

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// StateName is the name of the ConfigMap that holds the state of a migration, in the namespace of Flux.
	StateName = "sluice-migration"

	stateKey      = "state.json"
	savedSuffix   = ".json.gz"
	maxStateBytes = 900 << 10 // of the ConfigMap, which the API server limits to 1 MiB
	maxSavedBytes = 16 << 20  // of one saved object
)

// Directions of a migration.
const (
	Forward  = "forward"
	Backward = "backward"
)

// State is the intent of a migration and how far it got. It is written before what it describes is done.
type State struct {
	ID          string            `json:"id"` // value of reconcile requests
	Direction   string            `json:"direction"`
	Step        string            `json:"step"` // that runs, or ran last
	Done        bool              `json:"done"`
	Scope       Scope             `json:"scope"`
	Settings    Settings          `json:"settings"`
	Deployments []SavedDeployment `json:"deployments"` // of Flux that are scaled down
	Ready       []Ref             `json:"ready"`       // objects that must be Ready again
	Labelled    []Ref             `json:"labelled"`    // objects that got the label of the shard
	Created     []Ref             `json:"created"`     // objects of ours that did not exist
	Suspended   []Ref             `json:"suspended"`   // objects that the migration suspended

	configMap *corev1.ConfigMap
	saved     []*unstructured.Unstructured // that ours replace
}

// SavedDeployment is a Deployment that was scaled down.
type SavedDeployment struct {
	Name       string `json:"name"`
	Controller string `json:"controller"`
	Replicas   int32  `json:"replicas"`
}

// State returns the state of a migration, or nil if there is none.
func (e *Engine) State(ctx context.Context) (*State, error) {
	cm := &corev1.ConfigMap{}
	err := e.Client.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: StateName}, cm)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot get ConfigMap '%s/%s': %w", e.Namespace, StateName, err)
	}
	s := &State{configMap: cm}
	if err := json.Unmarshal([]byte(cm.Data[stateKey]), s); err != nil {
		return nil, fmt.Errorf("ConfigMap '%s/%s' holds no state of a migration: %w. Delete it if it is not needed",
			e.Namespace, StateName, err)
	}
	for key, content := range cm.BinaryData {
		if !strings.HasSuffix(key, savedSuffix) {
			continue
		}
		u, err := unpack(content)
		if err != nil {
			return nil, fmt.Errorf("ConfigMap '%s/%s': %s cannot be read: %w", e.Namespace, StateName, key, err)
		}
		s.saved = append(s.saved, u)
	}
	return s, nil
}

// save writes the state. It fails if another process changed it.
func (e *Engine) save(ctx context.Context, s *State) error {
	content, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if s.configMap == nil {
		s.configMap = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: StateName}}
	}
	size := len(content)
	s.configMap.Data = map[string]string{stateKey: string(content)}
	s.configMap.BinaryData = map[string][]byte{}
	for _, u := range s.saved {
		packed, err := pack(u)
		if err != nil {
			return err
		}
		size += len(packed)
		s.configMap.BinaryData[u.GetKind()+"."+u.GetName()+savedSuffix] = packed
	}
	if size > maxStateBytes {
		return fmt.Errorf("the state of the migration needs %d bytes, at most %d fit into a ConfigMap. Migrate some "+
			"namespaces at a time with --namespaces", size, maxStateBytes)
	}
	if s.configMap.ResourceVersion == "" {
		err = e.Client.Create(ctx, s.configMap)
	} else {
		err = e.Client.Update(ctx, s.configMap)
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("another migration runs in namespace '%s'. Wait until it ends, then run this one again",
			e.Namespace)
	}
	if err != nil {
		return fmt.Errorf("cannot save the state of the migration in ConfigMap '%s/%s': %w", e.Namespace,
			StateName, err)
	}
	return nil
}

// keep adds an object to the saved ones.
func (s *State) keep(u *unstructured.Unstructured) {
	u = u.DeepCopy()
	delete(u.Object, "status")
	for _, field := range []string{"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	s.saved = append(s.saved, u)
}

func pack(u *unstructured.Unstructured) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if err := json.NewEncoder(z).Encode(u.Object); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func unpack(content []byte) (*unstructured.Unstructured, error) {
	z, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(io.LimitReader(z, maxSavedBytes+1))
	if err != nil {
		return nil, err
	}
	if len(raw) > maxSavedBytes {
		return nil, errors.New("it is too large")
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil {
		return nil, err
	}
	return u, nil
}
