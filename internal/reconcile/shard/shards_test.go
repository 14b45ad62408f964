package shard

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestJoiningMovesOnlyItsShare checks rendezvous hashing: replicas have about equal shares, and one that joins or
// leaves moves its own share only.
func TestJoiningMovesOnlyItsShare(t *testing.T) {
	const keys = 10_000
	three, four := NewView("a", "b", "c"), NewView("c", "b", "d", "a")
	shares, moved := map[string]int{}, 0
	for i := range keys {
		key := fmt.Sprintf("Kustomization/apps/app-%d", i)
		before, after := three.Owner(key), four.Owner(key)
		shares[before]++
		if before != after {
			moved++
			if after != "d" {
				t.Fatalf("%s moved from %s to %s although neither left", key, before, after)
			}
		}
	}
	for id, n := range shares {
		if n < keys/3*9/10 || n > keys/3*11/10 {
			t.Errorf("replica %s has %d of %d keys", id, n, keys)
		}
	}
	if moved < keys/4*9/10 || moved > keys/4*11/10 {
		t.Errorf("%d of %d keys moved to the fourth replica", moved, keys)
	}
	if owner := NewView().Owner("x"); owner != "" {
		t.Errorf("the empty view gives a key to %q", owner)
	}
}

func FuzzParseView(f *testing.F) {
	for _, text := range []string{"", "a", "b,a", "a,a,,", ",", "\x00,\xff"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v := ParseView(text)
		if len(v) > maxReplicas || !ParseView(v.String()).Equal(v) {
			t.Errorf("%q: %q", text, v)
		}
		if owner := v.Owner("key"); (owner == "") != (len(v) == 0) {
			t.Errorf("%q: owner %q", text, owner)
		}
	})
}

// simulated is a replica in a cluster of leases, whose steps run in any order.
type simulated struct {
	*Shards
	id      string
	alive   bool
	next    View            // about to be published; nil if none
	drained <-chan struct{} // of next
	work    map[string]*Work
}

// cluster is the leases of all replicas: their published views.
type cluster struct {
	*testing.T
	random   *rand.Rand
	replicas map[string]*simulated
	leases   map[string]View
	created  int
}

// alive returns the replicas whose leases exist.
func (c *cluster) view() View {
	var ids []string
	for id := range c.leases {
		ids = append(ids, id)
	}
	return NewView(ids...)
}

func (c *cluster) join() {
	c.created++
	r := &simulated{Shards: &Shards{}, id: fmt.Sprintf("r%d", c.created), alive: true, work: map[string]*Work{}}
	r.Join(r.id)
	c.replicas[r.id], c.leases[r.id] = r, nil
}

// follow reads the leases, and lets a replica adapt to them.
func (c *cluster) follow(r *simulated) {
	peers := map[string]View{}
	for id, v := range c.leases {
		if id != r.id {
			peers[id] = v
		}
	}
	published, wanted := c.leases[r.id], c.view()
	r.next = nil
	if wanted.Equal(published) {
		wanted = published
	} else {
		r.next = wanted
	}
	r.drained = r.Follow(published, wanted, peers)
}

// publish publishes the next view if the work that moves has ended.
func (c *cluster) publish(r *simulated) {
	select {
	case <-r.drained:
	default:
		return
	}
	if r.next != nil {
		c.leases[r.id], r.next = r.next, nil
	}
}

func (c *cluster) begin(r *simulated, key string) {
	if r.work[key] != nil {
		return
	}
	w, ok := r.Begin(c.Context(), key, key)
	if !ok {
		return
	}
	for _, other := range c.replicas {
		if other.work[key] != nil {
			c.Fatalf("%s works on %s, and %s begins; leases: %v", other.id, key, r.id, c.leases)
		}
	}
	r.work[key] = w
}

// kill ends a replica in any state. Its lease ends later, when its work cannot write any longer.
func (c *cluster) kill(r *simulated) {
	for _, w := range r.work {
		w.End()
	}
	delete(c.replicas, r.id)
	delete(c.leases, r.id)
}

// TestAKeyIsWorkedOnByOneReplica lets replicas join, leave, read the leases, publish and work in random orders: two
// never work on a key at once. When all is quiet, each key has exactly one replica.
func TestAKeyIsWorkedOnByOneReplica(t *testing.T) {
	for seed := range uint64(300) {
		c := &cluster{T: t, random: rand.New(rand.NewPCG(seed, 1)), replicas: map[string]*simulated{},
			leases: map[string]View{}}
		for range 3 {
			c.join()
		}
		var keys []string
		for i := range 12 {
			keys = append(keys, fmt.Sprint("key", i))
		}
		for range 500 {
			c.step(keys)
		}
		c.settle()
		for _, key := range keys {
			var owners []string
			for _, r := range c.replicas {
				if r.Owns(key) {
					owners = append(owners, r.id)
				}
			}
			if len(owners) != 1 {
				t.Fatalf("seed %d: %s has the replicas %v; leases: %v", seed, key, owners, c.leases)
			}
		}
	}
}

// step does one thing at random.
func (c *cluster) step(keys []string) {
	ids := c.view()
	var r *simulated
	if len(ids) > 0 {
		r = c.replicas[ids[c.random.IntN(len(ids))]]
	}
	switch n := c.random.IntN(100); {
	case r == nil || n < 2 && len(ids) < 6:
		c.join()
	case n < 4 && len(ids) > 1:
		c.kill(r)
	case n < 25:
		c.follow(r)
	case n < 40:
		c.publish(r)
	case n < 75:
		c.begin(r, keys[c.random.IntN(len(keys))])
	default:
		for key, w := range r.work {
			w.End()
			delete(r.work, key)
			break
		}
	}
}

// settle ends all work, and lets the replicas read and publish until nothing changes.
func (c *cluster) settle() {
	for range 4 {
		for _, r := range c.replicas {
			for key, w := range r.work {
				w.End()
				delete(r.work, key)
			}
			c.follow(r)
			c.publish(r)
			c.follow(r)
		}
	}
}

// TestWorkOfAMovedObjectIsCanceled has work that does not end by itself when its object moves.
func TestWorkOfAMovedObjectIsCanceled(t *testing.T) {
	s := &Shards{}
	s.Join("a")
	s.Follow(nil, NewView("a"), nil)
	s.Follow(NewView("a"), NewView("a"), nil)
	w, ok := s.Begin(t.Context(), "key", "object")
	if !ok || !IsFirst(w.Context) {
		t.Fatalf("got %v, %v", w, ok)
	}
	left := s.Leave()
	<-w.Context.Done()
	select {
	case <-left:
		t.Error("the replica left while it worked")
	default:
	}
	w.End()
	<-left
}

// TestFirstWorkIsRepeatedAfterAMove checks that an object which was away is read again.
func TestFirstWorkIsRepeatedAfterAMove(t *testing.T) {
	s := &Shards{}
	s.Join("a")
	mine, both := NewView("a"), NewView("a", "b")
	s.Follow(mine, mine, nil)
	moved := 0
	for i := range 100 {
		key := fmt.Sprint(i)
		w, ok := s.Begin(t.Context(), key, key)
		if !ok || !IsFirst(w.Context) {
			t.Fatalf("key %s: %v, %v", key, w, ok)
		}
		w.End()
	}
	s.Follow(both, both, map[string]View{"b": both})
	s.Follow(mine, mine, nil)
	for i := range 100 {
		key := fmt.Sprint(i)
		w, _ := s.Begin(t.Context(), key, key)
		if wasAway := both.Owner(key) == "b"; IsFirst(w.Context) != wasAway {
			t.Errorf("key %s: first %v, but it was away: %v", key, IsFirst(w.Context), wasAway)
		} else if wasAway {
			moved++
		}
		w.End()
	}
	if moved == 0 {
		t.Error("no key moved")
	}
	s.Forget("0")
	if w, _ := s.Begin(t.Context(), "0", "0"); !IsFirst(w.Context) || len(s.known) != 100 {
		t.Errorf("after the object was deleted: first %v, %d objects known", IsFirst(w.Context), len(s.known))
	}
}
