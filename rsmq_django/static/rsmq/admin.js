"use strict";
// What our admin pages do by themselves. Every page works without it.
