package review

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/sluice-gitops/sluice/internal/cluster/risk"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/limits/lru"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/review/preview"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// Image is an image that a change brings.
type Image struct {
	Name   string   `json:"name"`
	Exists *bool    `json:"exists,omitempty"` // nil if it is not known
	Why    string   `json:"why,omitempty"`    // it is not known
	Of     []string `json:"of"`               // objects
}

const (
	maxImages    = 50 // of a review, that are looked up
	imageTimeout = 3 * time.Second
	imagesAtOnce = 8
	foundTTL     = 10 * time.Minute
	absentTTL    = 30 * time.Second
)

// imagesOf returns the images that a previewed change brings.
func imagesOf(r *preview.Result) []Image {
	at := map[string]int{}
	var out []Image
	for _, o := range r.Owners {
		for _, object := range o.Objects {
			if object.Action == risk.Deleted {
				continue
			}
			for _, i := range object.Images {
				if i.New == "" {
					continue
				}
				n, ok := at[i.New]
				if !ok {
					n = len(out)
					at[i.New] = n
					out = append(out, Image{Name: i.New})
				}
				if object := object.String(); !slices.Contains(out[n].Of, object) {
					out[n].Of = append(out[n].Of, object)
				}
			}
		}
	}
	return out[:min(len(out), maxNamed)]
}

// registries looks up images.
type registries struct {
	trusted, strangers http.RoundTripper
	keychain           authn.Keychain // for allowed authors
	now                func() time.Time

	found lru.Cache[lookup, answer]
}

type lookup struct {
	image   string
	trusted bool
}

type answer struct {
	exists bool
	until  time.Time
}

// privateNetworks are not asked for strangers, who could otherwise find out what answers there.
var privateNetworks = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("fc00::/7")}

func newRegistries(now func() time.Time) (*registries, error) {
	r := &registries{keychain: authn.DefaultKeychain, now: now}
	var err error
	if r.trusted, err = (&egress.Policy{RefuseLinkLocal: true}).Transport(egress.Options{}); err != nil {
		return nil, err
	}
	r.strangers, err = (&egress.Policy{RefuseLinkLocal: true, RefuseLoopback: true, Closed: privateNetworks,
		HidePrivate: true}).Transport(egress.Options{})
	return r, err
}

// check completes images with whether they exist.
func (r *registries) check(ctx context.Context, images []Image, trusted bool) {
	group := guard.NewGroup("looking up images")
	group.SetLimit(imagesAtOnce)
	for n := range images {
		image := &images[n]
		if n >= maxImages {
			image.Why = "a review looks up no more images"
			continue
		}
		group.Go(func() error {
			exists, err := r.exists(ctx, lookup{image.Name, trusted})
			if err != nil {
				image.Why = excerpt.Line(err.Error(), 200)
			} else {
				image.Exists = &exists
			}
			return nil
		})
	}
	_ = group.Wait() // the goroutines return no error
}

func (r *registries) exists(ctx context.Context, l lookup) (bool, error) {
	if a, ok := r.found.Get(l); ok && r.now().Before(a.until) {
		return a.exists, nil
	}
	ref, err := name.ParseReference(l.image)
	if err != nil {
		return false, errors.New("the name is not valid")
	}
	ctx, cancel := context.WithTimeout(ctx, imageTimeout)
	defer cancel()
	options := []remote.Option{remote.WithContext(ctx), remote.WithTransport(r.strangers),
		remote.WithAuth(authn.Anonymous)}
	if l.trusted {
		options = []remote.Option{remote.WithContext(ctx), remote.WithTransport(r.trusted),
			remote.WithAuthFromKeychain(r.keychain)}
	}
	_, err = remote.Head(ref, options...)
	var answered *transport.Error
	switch {
	case err == nil:
		r.remember(l, answer{exists: true, until: r.now().Add(foundTTL)})
		return true, nil
	case errors.As(err, &answered) && answered.StatusCode == http.StatusNotFound:
		r.remember(l, answer{until: r.now().Add(absentTTL)})
		return false, nil
	case errors.As(err, &answered) && (answered.StatusCode == http.StatusUnauthorized ||
		answered.StatusCode == http.StatusForbidden):
		return false, errors.New("the registry needs a login")
	case ctx.Err() != nil:
		return false, errors.New("the registry did not answer in time")
	}
	return false, errors.New("the registry cannot be asked")
}

func (r *registries) remember(l lookup, a answer) {
	r.found.Add(l, a, int64(len(l.image)), lru.Limits{Count: 10_000, Size: 1 << 20})
}
